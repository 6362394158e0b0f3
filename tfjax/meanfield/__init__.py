"""Measures in place of tokens: the limit of many."""
