import alti

model = alti.load("LANGUAGE_MODEL")
found = model.explain("The capital of France is", answer=" Paris.", method="absence")
print(found)
