# frozen_string_literal: true

# SWIG's module of the bindings, for the specs that use it.
Native = Backhop.const_get(:Native)
