from captum.attr import FeatureAblation, LLMAttribution, TextTokenInput
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("LANGUAGE_MODEL")
model = AutoModelForCausalLM.from_pretrained("LANGUAGE_MODEL")
method = LLMAttribution(FeatureAblation(model), tokenizer)
prompt = TextTokenInput("The capital of France is", tokenizer)
found = method.attribute(prompt, target=" Paris.", forward_in_tokens=False)
print(*zip(found.input_tokens, found.seq_attr.tolist(), strict=True), sep="\n")
