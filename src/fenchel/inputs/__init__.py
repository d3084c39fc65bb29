"""What users bring, read once: tables and their columns, levels, the response with its likelihood, the family.

frames          a table of any library as a pandas frame, and each column by what it holds
levels          the values of a column: groups in order, and the steps of a regular time
observations    y as a likelihood takes it: numbers, labels, what each row has beside it; families by their names
fixed_columns   columns of fixed effects, centred and scaled
"""
