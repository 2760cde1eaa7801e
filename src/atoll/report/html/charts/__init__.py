"""Charts as SVG that fits any width: text keeps its size, positions are shares of the width, lines are stretched."""
