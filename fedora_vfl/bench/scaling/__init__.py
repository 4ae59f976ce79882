"""How well FedORA forgets with its default settings, whatever made the model, and what each part of its rule does."""
