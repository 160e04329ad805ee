"""The one door to a real account: what AWS is asked, by boto3, under the operator's own credentials.

It only reads. What changes an account is Pulumi's business.
"""
