-- How often things happened.
SELECT name, number FROM totals
