import inseq

model = inseq.load_model("LANGUAGE_MODEL", "input_x_gradient")
prompt = "The capital of France is"
found = model.attribute(prompt, f"{prompt} Paris.", attribute_target=True)
found.show()
