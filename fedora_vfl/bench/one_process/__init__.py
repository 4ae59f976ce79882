"""All parties of a job in one process: their own code without sockets, equal to a cluster's to the bit."""
