# To be sourced: what was compiled already with the same flags, as for a package that is built twice, comes from a cache in
# build/, where ccache is installed.
export PATH=/usr/lib/ccache:$PATH
CCACHE_DIR=$(realpath -m "$(dirname "${BASH_SOURCE[0]}")/../build/ccache")
export CCACHE_DIR CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1
