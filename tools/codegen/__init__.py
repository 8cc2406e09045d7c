"""Build-time generator of the PrivateUse1 operator registrations."""
