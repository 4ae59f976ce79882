"""Every table and figure of the paper from one command: experiments as files, a sweep that goes on, a report."""
