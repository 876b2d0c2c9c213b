/* Other names of conduit tcp, for build systems that know a fixed list of conduits: install.sh --alias NAME adds them below. For
 * gasnet_config.h, wherever it is included from. */
