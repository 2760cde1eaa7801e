"""NEAT for islands: networks whose structure and weights evolve, named so that islands understand each other.

names, functions, population, settings    what a genome is
start, structure, attributes, crossover   how genomes come to be
genes, distance, species, reproduction    how a generation follows another
evaluation, recurrent, scoring            what networks answer, and how good that is
coding, checking                          how a genome travels, and what is refused
island                                    one client's population, as it is stored between rounds
"""
