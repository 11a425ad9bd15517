"""Programs with graph breaks, each with the number of graphs and breaks that it should take."""
