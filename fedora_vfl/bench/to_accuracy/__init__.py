"""Bytes and seconds until an accuracy is reached, for every encoding and schedule, at rates and distances."""
