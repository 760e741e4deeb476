import json

import shap
from shap.benchmark import SequentialMasker
from transformers import pipeline

with open("texts.jsonl") as file:
    texts = [json.loads(line)["text"] for line in file]
classifier = pipeline("text-classification", model="CLASSIFIER", top_k=None, dtype="float32")
model = shap.models.TransformersPipeline(classifier)
masker = shap.maskers.Text(classifier.tokenizer)
methods = {
    "random": shap.explainers.other.Random(model, masker),
    "Owen": shap.Explainer(model, masker),
    "Shapley": shap.PermutationExplainer(model, masker),
}
for text in texts:  # one by one: together they must have the same length
    label = int(model([text]).argmax())
    for name, explainer in methods.items():
        found = explainer([text])[:, :, label]
        for change in ("remove", "keep"):
            judge = SequentialMasker(
                change, "positive", masker, lambda shown, c=label: model(list(shown))[:, c], [text]
            )
            print(text, name, change, judge(found, name).value)
