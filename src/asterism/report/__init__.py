"""Result records in, a table and a figure out, beside the paper's own. Never trains."""
