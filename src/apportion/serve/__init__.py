"""The studio: a service that answers what the command line answers, over HTTP, and a page that shows it."""
