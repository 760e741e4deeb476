from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers_interpret import SequenceClassificationExplainer

tokenizer = AutoTokenizer.from_pretrained("CLASSIFIER")
model = AutoModelForSequenceClassification.from_pretrained("CLASSIFIER", dtype="float32")
explainer = SequenceClassificationExplainer(model, tokenizer)
print(*explainer("A clever film, but nobody can follow its plot."), sep="\n")
