"""Small programs in the shape of public ones. Each one is changed by one line: `attach`.

`build(stage, journal)` compiles a program as its public original does. The stage gives it its models, and stops it where a
test says so.
"""
