"""A real federation's machines: keys and certificates, link and proxy on the server, a node on every site."""
