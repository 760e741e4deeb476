import alti

model = alti.load("LANGUAGE_MODEL")
documents = ["The tower was finished in 1889.", "Big Ben is a bell.", "Lyon lies on the Rhône."]
asked = {"documents": documents, "answer": "In 1889.", "groups": "document", "total": True}
print(model.explain("When was it finished?", method="surrogate", **asked))
