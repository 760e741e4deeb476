// Requests to the server.

export const UNREACHABLE = "The server does not answer: is alti serve still running?";

export async function ask(address, question, signal) {
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify(question);
  let response;
  try {
    response = await fetch(address, { method: "POST", headers, body, signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(UNREACHABLE);
  }
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  throw new Error(error ?? `The server responded with ${response.status}.`);
}
