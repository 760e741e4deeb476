import inseq

model = inseq.load_model("LANGUAGE_MODEL", "input_x_gradient")
documents = ["The tower was finished in 1889.", "Big Ben is a bell.", "Lyon lies on the Rhône."]
prompt = "\n\n".join([*documents, "When was it finished?"])
found = model.attribute(prompt, f"{prompt} In 1889.")
ends = [len(model.tokenizer("\n\n".join(documents[:n])).input_ids) for n in range(4)]
scores = found.sequence_attributions[0].aggregate().target_attributions.nansum(1)
for document, start, end in zip(documents, ends[:-1], ends[1:], strict=True):
    print(document, scores[start:end].sum().item())
