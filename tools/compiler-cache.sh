# To be sourced: sources that were compiled before with the same flags come from a cache in build/, if ccache is
# installed.
export PATH=/usr/lib/ccache:$PATH
CCACHE_DIR=$(realpath -m "$(dirname "${BASH_SOURCE[0]}")/../build/ccache")
export CCACHE_DIR CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1
