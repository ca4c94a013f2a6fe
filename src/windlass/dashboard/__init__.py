"""The dashboard: pages for operators, at `/` of the HTTP API.

It uses the public `/v1` alone. The browser calls `/v1` itself; the pages that the server
renders ask the same routes with the credentials of their reader. So the dashboard can show and do
nothing that a script cannot, and roles and queues of access tokens hold without a second check.
"""
