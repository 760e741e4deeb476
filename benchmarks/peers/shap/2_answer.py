import shap
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("LANGUAGE_MODEL")
model = AutoModelForCausalLM.from_pretrained("LANGUAGE_MODEL")
forced = shap.models.TeacherForcing(model, tokenizer)
masker = shap.maskers.Text(tokenizer, mask_token="...", collapse_mask_token=True)
found = shap.Explainer(forced, masker)(["The capital of France is"], [" Paris."])
print(*zip(found.data[0], found.values[0].sum(-1).tolist(), strict=True), sep="\n")
