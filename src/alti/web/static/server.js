// Requests to the server, and the forms in which numbers and files travel.

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
  const { status } = response;
  throw Object.assign(new Error(error ?? `The server responded with ${status}.`), { status });
}

// The server sends a map as 16-bit shares of its maximum; it sends several as one.
export function unpacked({ largest, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const shares = new DataView(bytes.buffer);
  const size = bytes.length / 2 / largest.length;
  return largest.map((most, number) => {
    const map = new Float64Array(size);
    const start = number * size;
    for (let i = 0; i < size; i++) {
      map[i] = (shares.getUint16(2 * (start + i), true) / 65535) * most;
    }
    return map;
  });
}

// A file in base64.
export async function encoded(file) {
  const address = await new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });
  return address.slice(address.indexOf(",") + 1);
}
