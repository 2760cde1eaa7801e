"""Real federations: keys and certificates, server and proxy, a node on every site, site limits, doctor."""
