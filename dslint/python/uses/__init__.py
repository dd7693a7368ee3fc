"""What a module uses of the names of libraries, and under which tests of releases."""
