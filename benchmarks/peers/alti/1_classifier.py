import alti

model = alti.load("CLASSIFIER")
found = model.explain("A clever film, but nobody can follow its plot.", method="consensus")
print(found)
