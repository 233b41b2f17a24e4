"""What a study hands over: manifest, schemas, verification against dvc.lock."""
