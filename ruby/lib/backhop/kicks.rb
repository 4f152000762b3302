# frozen_string_literal: true

require_relative "bunny"
require_relative "kicks/arrivals"
require_relative "kicks/middleware"
require_relative "kicks/handler"
