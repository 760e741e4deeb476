import shap
from transformers import pipeline

classifier = pipeline("text-classification", model="CLASSIFIER", top_k=None, dtype="float32")
found = shap.Explainer(classifier)(["A clever film, but nobody can follow its plot."])
print(*zip(found.data[0], found.values[0].tolist(), strict=True), sep="\n")
