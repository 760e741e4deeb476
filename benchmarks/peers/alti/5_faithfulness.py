from pathlib import Path

import alti

model = alti.load("CLASSIFIER")
plan = alti.bench.Plan("mine", "texts.jsonl", methods=("random", "alti", "consensus"))
list(alti.bench.run(plan, model, Path("rows.jsonl")))
print(alti.bench.summary(*alti.bench.load_rows(Path("rows.jsonl")))[0].text())
