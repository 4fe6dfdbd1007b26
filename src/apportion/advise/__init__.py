"""Answers: what trained models say about a program, with how sure they are."""
