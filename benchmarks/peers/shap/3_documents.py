import numpy as np
import shap
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("LANGUAGE_MODEL")
model = AutoModelForCausalLM.from_pretrained("LANGUAGE_MODEL")
documents = ["The tower was finished in 1889.", "Big Ben is a bell.", "Lyon lies on the Rhône."]


def log_p(kept):
    values = []
    for row in kept:
        prompt = "\n\n".join([*np.array(documents)[row > 0], "When was it finished?"])
        ids = tokenizer(f"{prompt} In 1889.", return_tensors="pt").input_ids
        start = len(tokenizer(prompt).input_ids)
        log_probs = model(ids).logits[0, start - 1 : -1].log_softmax(-1)
        values.append(log_probs.gather(1, ids[0, start:, None]).sum().item())
    return np.array(values)


found = shap.explainers.Exact(log_p, np.zeros((1, 3)))(np.ones((1, 3)))
print(*zip(documents, found.values[0].tolist(), strict=True), sep="\n")
