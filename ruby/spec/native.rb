# frozen_string_literal: true

# What SWIG made of the bindings, for the specs that look there.
Native = Backhop.const_get(:Native)
