import inseq

model = inseq.load_model("TRANSLATOR", "input_x_gradient")
source, target = (
    "Der alte Koch hat den grauen Dieb gerufen .",
    "The old cook has called the grey thief .",
)
found = model.attribute(source, target)
found.show()
