"""What leaks by design, measured: attacks on what each role sees in a real run, and defences against them."""
