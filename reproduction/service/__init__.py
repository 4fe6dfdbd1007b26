"""The studio's service under load and under abuse."""
