import torch
from captum.attr import LayerIntegratedGradients
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("CLASSIFIER")
model = AutoModelForSequenceClassification.from_pretrained("CLASSIFIER", dtype=torch.float32)
ids = tokenizer("A clever film, but nobody can follow its plot.", return_tensors="pt").input_ids
gradients = LayerIntegratedGradients(lambda ids: model(ids).logits, model.get_input_embeddings())
baseline = torch.full_like(ids, tokenizer.mask_token_id)
scores = gradients.attribute(ids, baseline, target=int(model(ids).logits.argmax())).sum(-1)[0]
print(*zip(tokenizer.convert_ids_to_tokens(ids[0]), scores.tolist(), strict=True), sep="\n")
