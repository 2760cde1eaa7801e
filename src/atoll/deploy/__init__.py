"""Real federations: certificates, bundles, server and proxy, a node at every site, site limits, doctor."""
