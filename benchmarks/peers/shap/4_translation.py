import shap
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("TRANSLATOR")
model = AutoModelForSeq2SeqLM.from_pretrained("TRANSLATOR")
found = shap.Explainer(model, tokenizer)(["Der alte Koch hat den grauen Dieb gerufen ."])
print(found.data[0], found.output_names, found.values[0], sep="\n")
