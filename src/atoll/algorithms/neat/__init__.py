"""NEAT for islands: networks whose structure and weights evolve, with node names that agree between islands.

settings, functions, population    what a genome is
variation, reproduction, species   how one generation follows another
evaluation, scoring                network outputs, predicted classes and fitness
expression                         the part of a genome that affects its outputs
coding                             genomes as bytes, and checks of received genomes
island                             one client's population, which can be saved and resumed
"""
