# Written by bedplate. Environment of login shells: caches are on local disks, because homes may be on a file server.
if [ -d /usr/local/cuda ]; then export CUDA_HOME=/usr/local/cuda; fi
case ":$PATH:" in *:/usr/local/cuda/bin:*) ;; *) export PATH="$PATH:/usr/local/cuda/bin" ;; esac
if [ -n "${USER:-}" ] && [ -w "/scratch/$USER" ]; then
  export SCRATCH="/scratch/$USER"
  export UV_CACHE_DIR="${UV_CACHE_DIR:-$SCRATCH/.cache/uv}"
  export PIP_CACHE_DIR="${PIP_CACHE_DIR:-$SCRATCH/.cache/pip}"
  export MAMBA_ROOT_PREFIX="${MAMBA_ROOT_PREFIX:-$SCRATCH/micromamba}"
fi
