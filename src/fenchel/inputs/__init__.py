"""What users pass in, read once: tables and their columns, levels, the response with its likelihood, the family.

frames          a table of any library as a pandas frame, and the kind of each column
levels          the levels of a column: sorted labels, or the steps of a regular time axis
observations    y in the form that a likelihood requires, with exposure or trials of rows; names of families
fixed_columns   columns of fixed effects, centred and scaled
"""
