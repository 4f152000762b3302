# frozen_string_literal: true

module Backhop
  # The version of the gem, which is the core's version too.
  VERSION = Native.bh_version.freeze
end

Backhop.send(:private_constant, :Native) # SWIG makes it, and YARD cannot read it
