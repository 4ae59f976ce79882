"""What TLS libraries hold against a certificate, in words. It must not import gRPC: see process/core_messages.py."""

# What OpenSSL and BoringSSL call it, and what a reader should be told.
_REASONS = (
    ("expired", "has expired"),
    ("not yet valid", "is not valid yet; clocks may differ"),
    ("unknown ca", "is of another authority"),
    ("local issuer", "is of another authority"),
    ("self-signed", "is of another authority"),
    ("self signed", "is of another authority"),
    ("certificate signature failure", "is of another authority with the same name"),
    ("decrypt error", "is of another authority with the same name"),
)


def in_words(said: str) -> str:
    """Turn the reason of a TLS library into what follows on "its certificate"."""
    lower = said.lower().replace("_", " ")
    return next((words for sign, words in _REASONS if sign in lower), f"is not accepted ({said.strip()})")
