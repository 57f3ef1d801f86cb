import random


def docs(rows):
    print("a task's own words")
    return rows.filter(lambda doc: doc["lab"] == 0).map(lambda doc: {"loud": doc["q"].upper()})


def text(doc):
    return doc["loud"] + "?"


def results(doc, results):
    return {"acc": float(doc["n"] in results[0]), "wordy": len(results[0].split()) / 50}


def overlap(references, predictions, **_):
    return len(set(references[0]) & set(predictions[0])) / len(set(references[0]) | set(predictions[0]) | {"x"})


def fragile(doc, results):
    return {"acc": float(results[0].split()[0] == doc["n"] and random.random() < 0.5)}
