import alti

model = alti.load("TRANSLATOR")
source, target = (
    "Der alte Koch hat den grauen Dieb gerufen .",
    "The old cook has called the grey thief .",
)
found = model.explain(source, answer=target, method="linear", of="log_prob")
print(found.alignment(spaced=True).render())
