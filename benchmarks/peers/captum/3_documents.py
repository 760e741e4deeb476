from captum.attr import FeatureAblation, LLMAttribution, TextTemplateInput
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("LANGUAGE_MODEL")
model = AutoModelForCausalLM.from_pretrained("LANGUAGE_MODEL")
documents = ["The tower was finished in 1889.", "Big Ben is a bell.", "Lyon lies on the Rhône."]
prompt = TextTemplateInput("{}\n\n{}\n\n{}\n\nWhen was it finished?", documents)
method = LLMAttribution(FeatureAblation(model), tokenizer)
found = method.attribute(prompt, target=" In 1889.", forward_in_tokens=False)
print(*zip(documents, found.seq_attr.tolist(), strict=True), sep="\n")
